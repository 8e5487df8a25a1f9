"""Comparisons: order and equality, presence (None), patterns, ranges, and what is in what."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import wrong
from kwsniff.count.where.moment import as_times
from kwsniff.count.where.name import endpoint, typed
from kwsniff.count.where.parser import Comparison, Listing, Node
from kwsniff.count.where.term import (
    BODY,
    LIST,
    NETWORK,
    NOTHING,
    NUMBER,
    TEXT,
    TRUTH,
    Items,
    Term,
    Values,
    fitted,
    items_of,
    makes,
    negated,
    shown,
    term_of,
    tested,
    text_constant,
)
from kwsniff.output import suggestion

# Addresses: `client_ip in 10.0.0.0/8`, `broker == 10.0.0.9:9092`.

ENDS = {"client_ip": "client", "broker_ip": "broker", "client": "client", "broker": "broker"}
"""Names that can be compared with an address, and the end they are about."""
Network = IPv4Network | IPv6Network


def as_network(term: Term) -> Network | None:
    """The network that a constant names: one address, or a CIDR range; None if it names none."""
    if not term.constant or term.kind not in (TEXT, NETWORK):
        return None
    try:
        return ip_network(str(term.value), strict=False)
    except ValueError:
        return None


def is_address(term: Term) -> bool:
    """Whether a constant is an address, a range of them, or an address with a port."""
    return term.constant and term.kind in (TEXT, NETWORK) and (
        as_network(term) is not None or _endpoint(str(term.value)) is not None
    )  # fmt: skip


def _endpoint(text: str) -> str | None:
    address, _, port = text.rpartition(":")
    if not port.isdecimal():
        return None
    bare = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    try:
        parsed = ip_address(bare)
    except ValueError:
        return None
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def address_test(column: Term, constant: Term) -> Term:
    """Whether an end of the connection is, or is in, what `constant` names. Raises WhereError."""
    side = ENDS.get(column.name)
    if side is None:
        raise wrong(constant.at, f"{shown(column)} is no address; client_ip and broker_ip are")
    network = as_network(constant)
    if network is not None:
        address = Term(TEXT, lambda batch: batch[f"{side}_ip"], column.at)
        return tested(address, _in_network(network))
    written = _endpoint(str(constant.value))
    if written is None:
        raise wrong(constant.at, f"{constant.value!r} is no address")
    return tested(Term(TEXT, endpoint(side), column.at), lambda values: pc.equal(values, written))


def _in_network(network: Network) -> Callable[[Values], Values]:
    def test(addresses: Values) -> Values:
        # Each address once: there are far fewer than rows.
        encoded = addresses.dictionary_encode()
        hits = [ip_address(text) in network for text in encoded.dictionary.to_pylist()]
        return pa.array(hits, pa.bool_()).take(encoded.indices)

    return test


Kernel = Callable[[Values, Values], Values]
KERNELS: dict[str, Kernel] = {
    "==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
TURNED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"!=": "==", "is not": "is", "!~": "~"}
OPPOSITE |= {f"not {word}": word for word in ("in", "like", "between")}
NO_ERROR = "NONE"
"""Name of error code 0."""


@makes(Comparison)
def _comparison(node: Comparison) -> Term:
    pairs = zip(node.operators, node.operands, node.operands[1:], strict=False)
    terms = [_test(operator, left, right) for operator, left, right in pairs]

    def evaluate(batch: pa.RecordBatch) -> Values:
        result = terms[0].evaluate(batch)
        for term in terms[1:]:
            result = pc.and_(result, term.evaluate(batch))
        return result

    return terms[0] if len(terms) == 1 else Term(TRUTH, evaluate, node.at)


def _test(operator: str, left: Node, right: Node) -> Term:
    if operator in OPPOSITE:
        return negated(_test(OPPOSITE[operator], left, right))
    if operator == "in":
        return _found(term_of(left), right)
    if operator == "between":
        assert isinstance(right, Listing)
        low, high = right.items
        values = term_of(left)
        return _both(_ordered(">=", values, term_of(low)), _ordered("<=", values, term_of(high)))
    if operator in ("like", "~"):
        return pattern(term_of(left), term_of(right), operator)
    first, second = term_of(left), term_of(right)
    if NOTHING in (first.kind, second.kind):
        return _presence(first if second.kind == NOTHING else second, operator)
    if operator == "is":
        raise wrong(second.at, "`is` compares with None only; write ==")
    return _ordered(operator, first, second)


def _both(first: Term, second: Term) -> Term:
    return Term(TRUTH, lambda batch: pc.and_(first.evaluate(batch), second.evaluate(batch)), first.at)


def _presence(term: Term, operator: str) -> Term:
    """Whether a column has no value. `error` has none where the code is 0."""
    if operator not in ("==", "is"):
        raise wrong(term.at, "None can only be compared with == and !=")
    if not term.name:
        raise wrong(term.at, "only a column can be compared with None")
    term = typed(term, TEXT) if term.kind == BODY else term
    if term.name == "error":
        return negated(tested(term, lambda values: pc.not_equal(values, NO_ERROR)))
    return negated(tested(term, pc.is_valid))


def _ordered(operator: str, left: Term, right: Term) -> Term:
    if left.constant and not right.constant:
        left, right, operator = right, left, TURNED[operator]
    left, right = typed(left, right.kind), typed(right, left.kind)
    if right.kind == NETWORK or (left.name in ENDS and is_address(right)):
        if operator != "==":
            raise wrong(right.at, "an address can only be compared with == and !=, or with in")
        return address_test(left, right)
    left, right = as_times(left, right)
    if left.kind != right.kind or LIST in (left.kind, right.kind):
        raise wrong(right.at, mismatch(left, right))
    if left.kind == NUMBER:
        left, right, _ = fitted(left, right)
    if right.many or (left.many and not right.constant):
        raise wrong(right.at, f"{shown(left)} and {shown(right)} can only be compared with a value each")
    check_value(left, right)
    check_value(right, left)
    return _compared(KERNELS[operator], left, right)


def _compared(kernel: Kernel, left: Term, right: Term) -> Term:
    if right.constant and not left.constant:
        scalar = right.evaluate(pa.record_batch([]))
        return tested(left, lambda values: kernel(values, scalar))

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.fill_null(kernel(left.evaluate(batch), right.evaluate(batch)), False)

    return Term(TRUTH, evaluate, left.at)


def mismatch(left: Term, right: Term) -> str:
    """Why two terms cannot be compared."""
    if left.kind == LIST or right.kind == LIST:
        lists = left if left.kind == LIST else right
        name = lists.name or "it"
        each = ', or topic == "value"' if name == "topics" else ""
        return f'{shown(lists)} is a list; write "value" in {name}{each}, or len({name})'
    return f"{shown(left)} is {left.kind}, {shown(right)} is {right.kind}"


def check_value(column: Term, constant: Term) -> None:
    """Raise WhereError if the column can never have that value."""
    if column.values is None or not constant.constant or constant.kind != TEXT:
        return
    known = column.values()
    if constant.value not in known:
        hint = suggestion(str(constant.value), known) or f" (it is one of {', '.join(known[:10])})"
        raise wrong(constant.at, f"{column.name} is never {constant.value!r}{hint}")


# Patterns

PATTERNS: dict[str, Kernel] = {"~": pc.match_substring_regex, "like": pc.match_like}


def pattern(values: Term, wanted: Term, operator: str) -> Term:
    """Whether text matches a regular expression (RE2), or a pattern with % and _."""
    values = typed(values, TEXT)
    if values.kind != TEXT:
        hint = "; write topic" if values.name == "topics" else ""
        raise wrong(values.at, f"{operator} takes text, {shown(values)} is {values.kind}{hint}")
    return text_test(PATTERNS[operator], values, wanted)


def text_test(kernel: Kernel, values: Term, wanted: Term) -> Term:
    """A test of text with a constant one. Raises WhereError for a regular expression that is none."""
    text = text_constant(wanted)
    try:
        kernel(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0].removeprefix("Invalid regular expression: ")
        raise wrong(wanted.at, f"wrong regular expression: {reason}") from None
    return tested(values, lambda column: kernel(column, text))


# What is in what


def _found(left: Term, right_node: Node) -> Term:
    if isinstance(right_node, Listing):
        return _one_of(left, [term_of(node) for node in right_node.items])
    right = term_of(right_node)
    if right.kind == LIST:
        return in_list(left, right)
    if right.constant and not left.constant:
        if as_network(right) is not None and left.name in ENDS:
            return address_test(left, right)
        return _one_of(left, [right])
    if right.many:
        return _ordered("==", right, left)
    if right.kind == TEXT and left.kind == TEXT:
        return text_test(pc.match_substring, right, left)
    raise wrong(right.at, f"cannot look for {shown(left)} in {shown(right)}, which is {right.kind}")


def _one_of(left: Term, choices: list[Term]) -> Term:
    for choice in choices:
        if not choice.constant or choice.kind == NOTHING:
            raise wrong(choice.at, "the list after `in` takes numbers and quoted texts only")
    tests = [_ordered("==", left, choice) for choice in choices]

    def evaluate(batch: pa.RecordBatch) -> Values:
        result: Values = pa.scalar(False)
        for test in tests:
            result = pc.or_(result, test.evaluate(batch))
        return result

    return Term(TRUTH, evaluate, left.at)


def in_list(left: Term, right: Term) -> Term:
    """Whether a list column holds a value."""
    if not left.constant or left.kind != right.item:
        raise wrong(left.at, f"{shown(right)} holds items that are {right.item}, {shown(left)} is not")

    def evaluate(batch: pa.RecordBatch) -> Values:
        found = right.evaluate(batch)
        if isinstance(found, Items):
            return found
        return items_of(found)

    each = Term(right.item, evaluate, right.at, unit=right.unit, many=True)
    return _ordered("==", each, left)
