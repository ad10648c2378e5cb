"""Contexts: compiled models as files: made, opened, shared, adapted, described."""
