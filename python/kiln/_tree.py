# SPDX-License-Identifier: Apache-2.0
"""Lists, tuples and dicts of values, nested as one likes."""
from __future__ import annotations

from typing import Any, Callable, Iterator


class Named:
    """What stands for values under names, as a kiln.nn.Module for its parameters."""

    def _values(self) -> dict[str, Any]:
        """What is derived by, and what optimisers update."""
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        """What is saved."""
        raise NotImplementedError


def leaves_of(tree: Any) -> list[Any]:
    """The values in it, from left to right; None is none."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves_of(value)]
    if isinstance(tree, (list, tuple)):
        return [leaf for value in tree for leaf in leaves_of(value)]
    return [] if tree is None else [tree]


def rebuilt(tree: Any, leaves: Iterator[Any]) -> Any:
    """The same structure with other values."""
    if isinstance(tree, dict):
        return type(tree)((key, rebuilt(value, leaves)) for key, value in tree.items())
    if isinstance(tree, (list, tuple)):
        values = [rebuilt(value, leaves) for value in tree]
        if isinstance(tree, list):
            return values
        return type(tree)(*values) if hasattr(tree, '_fields') else tuple(values)
    return None if tree is None else next(leaves)


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The structure of `tree`, with function(leaf, leaves of the others in its place ...)."""
    columns = zip(leaves_of(tree), *(leaves_of(other) for other in others))
    return rebuilt(tree, iter([function(*column) for column in columns]))


def opened(tree: Any) -> Any:
    """The same structure, with a dict of its values in place of what has them under names."""
    return tree_map(lambda leaf: leaf._values() if isinstance(leaf, Named) else leaf, tree)
