"""`python -m proxy` is `loopline`."""

from proxy.cli import main

if __name__ == "__main__":
    main(prog_name="loopline")
