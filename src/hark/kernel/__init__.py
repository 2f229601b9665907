"""The kernel: transaction scripts over batches. Decides in Python, once, for both stores."""
