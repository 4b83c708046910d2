"""Settings: what there is (schema), named sets (presets), how they are read (parsing), what is refused (checks)."""
