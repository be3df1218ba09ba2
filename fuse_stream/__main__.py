"""`python -m fuse_stream` is `fuse-stream`, also where its folder is not on the PATH."""

from fuse_stream.cli.main import main

if __name__ == "__main__":
    main()
