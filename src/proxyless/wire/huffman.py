"""Huffman code of HPACK: decoding of string literals.

Specs: RFC 7541 section 5.2 and appendix B.

The code is canonical: codes of one length are consecutive numbers in the order of their symbols, so
the lengths define it. Decoding is a state machine that takes four bits per step.
"""

from functools import cache
from typing import Final

# The symbols of each code length. EOS, the last code of 30 bits, is left out: it is not valid.
_SYMBOLS_BY_LENGTH: Final = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: b"\n\r\x16",
}
_EOS_BITS: Final = 30


class _State(list["tuple[_State, bytes]"]):
    """The bits read since the last symbol. Item n: state after four bits of value n, and symbol."""

    __slots__ = ("is_final",)

    def __init__(self, *, is_final: bool) -> None:
        super().__init__()
        self.is_final = is_final


def decode_huffman(coded: bytes) -> bytes:
    """Raises ValueError for an invalid string. The caller bounds its size."""
    state = _start_state()
    decoded: list[bytes] = []
    append = decoded.append
    for byte in coded:
        state, symbol = state[byte >> 4]
        append(symbol)
        state, symbol = state[byte & 0xF]
        append(symbol)
    if not state.is_final:
        raise ValueError("Huffman string is not valid")
    return b"".join(decoded)


@cache
def _start_state() -> _State:
    # A bit string is a number with a leading 1, so that its length is part of it.
    start, eos = 1, (2 << _EOS_BITS) - 1
    symbols: dict[int, bytes] = {}
    code, length_before = start, 0
    for length, symbols_of_length in _SYMBOLS_BY_LENGTH.items():
        code <<= length - length_before
        length_before = length
        for symbol in symbols_of_length:
            symbols[code] = bytes((symbol,))
            code += 1
    prefixes = {code >> bits for code in (*symbols, eos) for bits in range(1, code.bit_length())}
    # "A padding strictly longer than 7 bits MUST be treated as a decoding error", and so must one
    # that is not "the most significant bits of the code for the EOS symbol", ones - RFC 7541 5.2
    states = {bits: _State(is_final=bits < 1 << 8 and not bits & (bits + 1)) for bits in prefixes}
    # "A Huffman-encoded string literal containing the EOS symbol MUST be treated as a decoding
    # error" - RFC 7541 5.2: no step leaves this state.
    states[eos] = failed = _State(is_final=False)
    failed += [(failed, b"")] * 16

    def step(bits: int, nibble: int) -> tuple[_State, bytes]:
        symbol = b""
        for shift in (3, 2, 1, 0):
            bits = bits << 1 | nibble >> shift & 1
            if bits in symbols:
                bits, symbol = start, symbols[bits]
            elif bits == eos:
                break
        return states[bits], symbol

    for bits in prefixes:
        states[bits] += [step(bits, nibble) for nibble in range(16)]
    return states[start]
