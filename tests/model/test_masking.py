"""Credentials in a URL are masked wherever the URL is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.model.masking import masked
from hark.model.reasons import reason

SECRET = "hunter2"
PLACES = {
    "postgresql://hark:hunter2@db/shop": "postgresql://hark:***@db/shop",
    "postgresql://hark:hunter2@[::1]:5432/shop": "postgresql://hark:***@[::1]:5432/shop",
    "mysql://hark:hunter2@db": "mysql://hark:***@db",
    "http://hark:hunter2@127.0.0.1:4097/": "http://hark:***@127.0.0.1:4097/",
    "postgresql://db/shop?password=hunter2&sslmode=require": "postgresql://db/shop?password=***&sslmode=require",
    "postgresql://db/shop?sslpassword=hunter2": "postgresql://db/shop?sslpassword=***",
    "postgresql://db/shop?password=h@hunter2": "postgresql://db/shop?password=***",
    "postgresql://db/shop?options=password%3Dhunter2": "postgresql://db/shop?options=password%3D***",
    "host=db password=hunter2 dbname=shop": "host=db password=*** dbname=shop",
    "host=db password = 'a \\' hunter2' dbname=shop": "host=db password = *** dbname=shop",
    "host=db PASSWORD='hunter2": "host=db PASSWORD=***",
    # Malformed: the password may be anywhere before the last @.
    "hark:hunter2@db/shop": "hark:***@db/shop",
    "postgresql:/hark:hunter2@db": "***@db",
    "postgresql://hark:a@hunter2@db/shop": "***@db/shop",
    "postgresql://hark:a/hunter2@db/shop": "***@db/shop",
    "postgresql://hark:a?hunter2@db/shop": "***@db/shop",
    "postgresql://hark:a#hunter2@db/shop": "***@db/shop",
    "postgresql://hark:a://hunter2@db/shop": "***@db/shop",
    "postgresql://hark%3Ahunter2@db/shop": "hark:***@db/shop",
    "postgresql://hark:hunter2": "postgresql://hark:***",
    "postgresql://hark:12hunter2/shop": "postgresql://hark:***",
}
HARMLESS = [
    "sqlite:///hark.db", "sqlite:////tmp/a@b/hark.db", "sqlite:///C:/hark.db", "sqlite://", "hark.db",
    "postgresql://hark@db/shop", "postgresql://db:5432/shop", "postgresql://a:5432,b:5433/shop",
    "postgresql://[::1]:5432/shop", "http://127.0.0.1:4097/hark",
]  # fmt: skip


@pytest.mark.parametrize("url", PLACES)
def test_x3_a_password_is_masked(url: str) -> None:
    assert masked(url).endswith(PLACES[url])
    assert SECRET not in masked(url)


@pytest.mark.parametrize("url", HARMLESS)
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert masked(url).endswith(url.rpartition("@")[2])


def test_a_url_that_is_not_text_is_masked_too() -> None:
    assert masked(3) == "3"
    assert SECRET not in masked(b"postgresql://hark:hunter2@db/shop")


@given(
    user=st.text(st.characters(exclude_characters="@")),
    password=st.text(min_size=1),
    rest=st.text(st.characters(exclude_characters="@")),
)
def test_x3_nothing_between_the_user_and_the_last_at_is_shown(user: str, password: str, rest: str) -> None:
    password = f"{SECRET}{password}"
    assert SECRET not in masked(f"postgresql://{user}:{password}@{rest}")
    assert SECRET not in masked(f"postgresql://{user}:{password[::-1]}{SECRET}@{rest}")


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), ValueError("  "), OSError(104, "reset.")])
def test_x5_a_reason_is_never_empty(error: Exception) -> None:
    assert reason(error)
    assert not reason(error).endswith((".", ":", " "))


def test_the_reason_of_an_exception_without_a_text_is_its_type() -> None:
    assert reason(TimeoutError()) == "TimeoutError"
    assert reason(ValueError("a b.")) == "a b"
