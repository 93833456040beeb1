"""The command `turb-kub`."""
