"""Run claimed instances: slots, activations, the lease, and the services that programs use."""
