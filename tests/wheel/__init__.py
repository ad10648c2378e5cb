"""The installed package as a user has it."""
