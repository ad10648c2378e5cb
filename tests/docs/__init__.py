"""What is generated into docs/."""
