"""Defines what the server answers in place of predictions."""


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the server
    """A request that is not answered by predictions: the status of HTTP, the reason, and what to do next."""

    def __init__(self, status: int, what: str, *, why: str = "", remedy: str = "", again: int = 0) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.why = why
        self.remedy = remedy
        self.again = again  # seconds after which the client may try again; 0: it need not
