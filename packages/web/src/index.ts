// The page is an application: it exports nothing, and talks to the server over HTTP only.
export {};
