"""Several processes (`world`, `launch`) and the device each of them uses (`device`)."""

from csml.light_imports import import_light

import_light("lightning_fabric")
