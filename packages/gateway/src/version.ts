/** The product's version; a test keeps it equal to the package's. */
export const VERSION = '0.1.0';
