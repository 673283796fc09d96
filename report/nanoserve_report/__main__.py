"""`python -m nanoserve_report`."""

from nanoserve_report.cli import main

if __name__ == "__main__":
    main()
