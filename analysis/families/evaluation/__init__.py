"""What LAMBADA, stereotype accuracy and CrowS-Pairs share."""
