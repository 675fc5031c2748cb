"""Build keys: what decides a build, part by part, and what differs between two builds."""
