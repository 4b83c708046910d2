"""Several processes (`world`, `launch`) and the device each of them uses (`device`)."""
