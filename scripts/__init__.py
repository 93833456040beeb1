"""The programs behind the Makefile; a package so that tests/frame can import them."""
