"""The one exception a user is meant to read."""


class LabError(Exception):
    """A problem the user can act on; the message is one sentence that says what is wrong and what to do."""
