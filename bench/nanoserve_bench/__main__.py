"""`python -m nanoserve_bench`: the same as the command `nanoserve-bench`."""

from nanoserve_bench.cli import main

if __name__ == "__main__":
    main()
