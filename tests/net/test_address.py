"""Addresses as text. Expected forms are the examples of RFC 5952."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.net.address import halves, text

HALF = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("hi", "lo", "expected"),
    [
        (0, 0x0000FFFF_0A000001, "10.0.0.1"),
        (0, 0x0000FFFF_FFFFFFFF, "255.255.255.255"),
        (0, 0, "::"),
        (0, 1, "::1"),
        (0x20010DB8_00000000, 0x00000000_00000001, "2001:db8::1"),
        (0x20010DB8_00000000, 0x00010000_00000001, "2001:db8::1:0:0:1"),
        (0x20010DB8_00000001, 0x00010001_00010001, "2001:db8:0:1:1:1:1:1"),
        (-1, -1, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        (0xFE80000000000000 - (1 << 64), 1, "fe80::1"),
    ],
)
def test_address_halves_as_text(hi, lo, expected):
    assert text(hi, lo) == expected


@given(HALF, HALF)
def test_text_and_halves_are_inverse(hi, lo):
    assert halves(text(hi, lo)) == (hi, lo)
