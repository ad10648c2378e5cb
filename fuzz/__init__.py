"""Coverage-guided fuzzing of everything that reads untrusted files: `make fuzz`."""
