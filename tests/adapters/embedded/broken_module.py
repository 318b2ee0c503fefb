"""A module that cannot be imported, as a user's may be."""

raise KeyError("missing setting")
