"""The one training loop, batches on the device, cross-fitting, history."""
