import { Component, type ReactNode } from 'react';

interface SafePartProps {
  readonly fallback: ReactNode;
  readonly children: ReactNode;
}

/** Should drawing a part fail, the rest of the page stays: the fallback takes its place. */
export class SafePart extends Component<SafePartProps, { readonly failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    return this.state.failed ? this.props.fallback : this.props.children;
  }
}
