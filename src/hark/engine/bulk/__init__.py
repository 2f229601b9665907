"""Actions on many instances, each carried out by a durable instance of the definition `hark.bulk`."""
