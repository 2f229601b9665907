"""`python -m hark`: the same as the console script `hark`."""

from hark.doors.cli import main

if __name__ == "__main__":
    main()
