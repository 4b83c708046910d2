"""Reports: results, maps, neighbours and training of runs as one page."""
