"""Recording of the samples: client environments, brokers, packet capture and the list of samples."""
