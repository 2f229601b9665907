"""The version of this installation of Hark. Its metadata says the same, and takes longer to read."""

VERSION = "0.1.0"
