"""What a node counts, and how that is told: counters and histograms, the table of metrics, the text that is scraped."""
