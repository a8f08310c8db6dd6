"""The state of the cluster: records make it, an image holds it, a controller decides what comes next."""
