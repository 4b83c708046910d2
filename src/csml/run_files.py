"""Names of the weight files in a run directory.

`csml.weights` looks for these files in a directory, and `csml.runs` owns the directory. Neither can import the names
from the other: `csml.weights` is the lower layer, and importing it takes seconds because of torch.
"""

BACKBONE = "backbone.safetensors"
CLASSIFIER = "classifier.safetensors"
DETECTOR = "detector.safetensors"
