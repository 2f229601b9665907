"""The world outside of the workflow: stock, a payment provider and a parcel service, in a SQLite file of their own.

Each function may be called twice for the same order, because a process can die after the call and before its result is
committed. So each one first looks whether it has been done, as a payment provider does with an idempotency key.
"""

import os
import sqlite3
from contextlib import contextmanager
from functools import cache

SCHEMA = """
    CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL CHECK (quantity >= 0));
    CREATE TABLE IF NOT EXISTS reservations (order_id TEXT PRIMARY KEY, item TEXT, quantity INTEGER, released INTEGER);
    CREATE TABLE IF NOT EXISTS charges (order_id TEXT PRIMARY KEY, amount INTEGER, tries INTEGER, refunded INTEGER);
    CREATE TABLE IF NOT EXISTS parcels (order_id TEXT PRIMARY KEY, tracking TEXT);
    INSERT OR IGNORE INTO stock VALUES ('tea', 1000), ('teapot', 5);
"""


class OutOfStock(Exception):
    """There are not as many as were ordered."""


class CardDeclined(Exception):
    """The payment provider will not charge this card, however often it is asked."""


class ProviderUnavailable(Exception):
    """The payment provider does not answer at the moment."""


def connect():
    return sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"), timeout=30, isolation_level=None)


@cache
def create_tables():
    connect().executescript(SCHEMA)


@contextmanager
def database():
    """A transaction on the shop's own database."""
    db = connect()
    try:
        create_tables()
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    finally:
        db.close()


def reserve(order_id, item, quantity):
    with database() as db:
        new = db.execute("INSERT OR IGNORE INTO reservations VALUES (?, ?, ?, 0)", (order_id, item, quantity)).rowcount
        if new:
            try:
                db.execute("UPDATE stock SET quantity = quantity - ? WHERE item = ?", (quantity, item))
            except sqlite3.IntegrityError:
                raise OutOfStock(f"fewer than {quantity} of {item} are left") from None
    return {"order_id": order_id, "item": item, "quantity": quantity}


def release(reservation):
    """Undo `reserve`; called with what it returned."""
    with database() as db:
        order_id = reservation["order_id"]
        if db.execute("UPDATE reservations SET released = 1 WHERE order_id = ? AND NOT released", (order_id,)).rowcount:
            values = (reservation["quantity"], reservation["item"])
            db.execute("UPDATE stock SET quantity = quantity + ? WHERE item = ?", values)


def charge(order_id, amount):
    """Charge the card. The provider is unavailable now and then, and declines amounts that end with 13."""
    if amount % 100 == 13:
        raise CardDeclined(f"the card was declined for {amount}")
    with database() as db:
        db.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, 0, 0)", (order_id, amount))
        db.execute("UPDATE charges SET tries = tries + 1 WHERE order_id = ?", (order_id,))
        [[tries]] = db.execute("SELECT tries FROM charges WHERE order_id = ?", (order_id,))
    if tries == 1 and amount % 2:
        raise ProviderUnavailable("the payment provider answered 503")
    return {"order_id": order_id, "amount": amount}


def refund(payment):
    """Undo `charge`."""
    with database() as db:
        db.execute("UPDATE charges SET refunded = 1 WHERE order_id = ?", (payment["order_id"],))


def ship(order_id):
    with database() as db:
        db.execute("INSERT OR IGNORE INTO parcels VALUES (?, ?)", (order_id, f"parcel-{order_id}"))
        [[tracking]] = db.execute("SELECT tracking FROM parcels WHERE order_id = ?", (order_id,))
    return tracking
