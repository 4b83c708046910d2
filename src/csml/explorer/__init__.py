"""A local web page over all images of a run: map, search, filters, labels."""
