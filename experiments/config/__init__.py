"""The configuration before a run: its YAML files, its composition from overrides, and the checks of its content."""
