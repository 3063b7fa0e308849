"""``python -m bmgd`` is the command `bmgd`."""

from bmgd.cli import entry

if __name__ == "__main__":
    entry()
