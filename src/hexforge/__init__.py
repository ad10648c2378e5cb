"""hexforge: the Snapdragon NPU stack on any computer."""
