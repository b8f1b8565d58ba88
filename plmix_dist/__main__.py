"""`python -m plmix_dist` is the same as `plmix`."""

from plmix_dist.cli import main

if __name__ == "__main__":
    main()
