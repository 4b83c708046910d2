"""What csml does, as Python functions: one verb for each command, and the `Run` that they return."""
