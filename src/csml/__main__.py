"""`python -m csml` is `csml`."""

from csml.cli import main

if __name__ == "__main__":
    main()
