"""Reports: what a sweep or a run found, as one HTML page that works offline and as figures for papers."""
