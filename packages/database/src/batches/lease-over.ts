/** The error of an item whose last attempt nobody finished. */
export const LEASE_OVER = 'The instance that worked on it did not come back, and no attempts are left.';
