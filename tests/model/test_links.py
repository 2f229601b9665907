"""Signed links (X3, fault 66): only genuine ones are valid, only for their awakeable, and no part can be changed."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hark import InvalidInput
from hark.model.links import LIFE, Keys, secrets_of

KEYS = Keys(["a secret"])
ASKED = 1_000_000
texts = st.text(max_size=40)
expiries = st.none() | st.integers(min_value=1, max_value=10**18)


@given(id=texts, nonce=texts, expiry=expiries)
def test_x3_a_signed_token_is_verified_and_gives_its_expiry(id: str, nonce: str, expiry: int | None) -> None:
    token = KEYS.sign(id, nonce, expiry)
    assert KEYS.verify(token, id, nonce, ASKED) == (ASKED + LIFE if expiry is None else expiry)


@given(data=st.data(), expiry=expiries)
def test_fault_66_any_changed_character_of_a_token_is_detected(data: st.DataObject, expiry: int | None) -> None:
    token = KEYS.sign("prom_1x", "nonce", expiry)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(string.printable + "é\0\ud800") | st.characters())
    assume(other != token[at])
    assert KEYS.verify(token[:at] + other + token[at + 1 :], "prom_1x", "nonce", ASKED) is None


def test_fault_66_half_of_a_surrogate_pair_in_a_token_is_refused_and_raises_nothing() -> None:
    token = KEYS.sign("prom_1x", "nonce", 5)
    for at in range(len(token)):
        assert KEYS.verify(token[:at] + "\ud800" + token[at + 1 :], "prom_1x", "nonce", ASKED) is None


@given(data=st.data())
def test_fault_66_any_flipped_bit_of_a_token_is_detected(data: st.DataObject) -> None:
    raw = bytearray(KEYS.sign("prom_1x", "nonce", 5).encode())
    at, bit = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(0, 7))
    raw[at] ^= 1 << bit
    assert KEYS.verify(raw.decode("latin-1"), "prom_1x", "nonce", ASKED) is None


@given(token=st.text())
def test_fault_66_text_that_is_not_a_token_is_refused(token: str) -> None:
    assert KEYS.verify(token, "prom_1x", "nonce", ASKED) is None


@given(st.tuples(texts, texts), st.tuples(texts, texts), expiries)
def test_fault_66_a_link_is_valid_only_for_its_own_awakeable(
    one: tuple[str, str], other: tuple[str, str], expiry: int | None
) -> None:
    """Also when the texts of two fields, concatenated, would be the same."""
    assume([text.encode(errors="replace") for text in one] != [text.encode(errors="replace") for text in other])
    assert KEYS.verify(KEYS.sign(*one, expiry), *other, ASKED) is None


@pytest.mark.parametrize(
    "change", [lambda t: t + "=", lambda t: t + "A", lambda t: t[:-1], lambda t: t.upper(), str.swapcase]
)
def test_fault_66_another_encoding_of_the_same_bytes_is_not_the_same_link(change: object) -> None:
    """43 characters of base64 carry two bits too many: decoding would accept four encodings of one MAC."""
    token = KEYS.sign("prom_1x", "nonce", 5)
    assert KEYS.verify(change(token), "prom_1x", "nonce", ASKED) is None  # type: ignore[operator]
    alphabet = string.ascii_letters + string.digits + "-_"
    spellings = [token[:-1] + last for last in alphabet if KEYS.verify(token[:-1] + last, "prom_1x", "nonce", 0)]
    assert spellings == [token]


def test_fault_66_the_expiry_cannot_be_extended() -> None:
    key, action, _, mac = KEYS.sign("prom_1x", "nonce", 5).split(".")
    for later in ("6", "0", "05", "+5", "５", "5" * 30, ""):
        assert KEYS.verify(f"{key}.{action}.{later}.{mac}", "prom_1x", "nonce", ASKED) is None


def test_x3_links_signed_with_an_old_key_stay_valid_after_a_rotation() -> None:
    old, both, new = Keys(["old"]), Keys(["new", "old"]), Keys(["new"])
    before, after = old.sign("prom_1x", "n", 9), both.sign("prom_1x", "n", 9)
    assert both.verify(before, "prom_1x", "n", 0) == 9
    assert new.verify(after, "prom_1x", "n", 0) == 9
    assert new.verify(before, "prom_1x", "n", 0) is None
    assert old.verify(after, "prom_1x", "n", 0) is None


def test_x3_a_signature_of_texts_is_not_a_link_and_a_link_is_not_one() -> None:
    token = KEYS.sign("prom_1x", "nonce", 5)
    assert KEYS.verify_texts(KEYS.sign_texts("form", token), "form", token)
    assert not KEYS.verify_texts(KEYS.sign_texts("form", token), "form" + token)
    assert not KEYS.verify_texts(token.rpartition(".")[2], token.split(".")[0], "prom_1x", "nonce", "a", "5")
    assert not KEYS.verify_texts("é", "form", token)
    assert Keys(["new", "a secret"]).verify_texts(KEYS.sign_texts("x"), "x")


def test_x3_a_secret_is_never_shown() -> None:
    assert "a secret" not in repr(KEYS)


def test_several_secrets_are_separated_by_commas_newest_first() -> None:
    assert secrets_of(" new , old,") == ["new", "old"]
    with pytest.raises(InvalidInput, match="text"):
        secrets_of(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="empty"):
        Keys(secrets_of(" , "))
