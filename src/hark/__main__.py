"""Run the console script `hark`, for `python -m hark`."""

from hark.doors.cli import main

if __name__ == "__main__":
    main()
