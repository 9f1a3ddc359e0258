"""`python -m rocketq` is the `rocketq` command."""

from rocketq.cli.main import main

if __name__ == "__main__":
    main()
