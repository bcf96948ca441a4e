"""`python -m vsam`, and so `torchrun … -m vsam`: the command `vsam`."""

from vsam_command import main

if __name__ == "__main__":
    main()
