"""Pictures of results: images with their neighbours, scenes with their objects."""
