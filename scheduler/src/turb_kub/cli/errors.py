"""What a command says to its user when it cannot do what was asked."""


class CommandError(Exception):
    """One sentence for standard error, and the exit code that goes with it."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
